"""Confluent's Parallel Consumer in Java, beside which offset maps are read and written."""
