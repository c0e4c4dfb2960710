"""How much to draft: the measured cost model and a fixed budget."""
