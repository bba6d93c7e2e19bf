"""Random modules, guests and registries."""
