"""From a guest's bytes to compiled code: validation, linking, compilation and its cache."""
