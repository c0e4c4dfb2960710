"""echodraft."""
