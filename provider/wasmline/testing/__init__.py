"""What tests of transforms and pipelines need: guests, and fixtures over a real Kafka. The engine never loads it."""
