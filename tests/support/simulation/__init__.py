"""The engine's own code on simulated clients, threads and clocks."""
