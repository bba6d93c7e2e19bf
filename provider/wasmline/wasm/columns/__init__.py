"""Arrow columns in the shim's memory, and the cells through which the host and the shim talk."""
