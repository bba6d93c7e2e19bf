"""Arrow columns in the shim's memory, and the control block shared by host and shim."""
