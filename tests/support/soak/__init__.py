"""Memory and outputs of jobs that run for long."""
