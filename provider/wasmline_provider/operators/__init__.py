"""Operators: build, test, publish, deploy, stream, train, promote."""
