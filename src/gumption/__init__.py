"""gumption: compute-efficient reinforcement learning for language models."""
