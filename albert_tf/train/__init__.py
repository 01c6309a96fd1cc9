"""Training: devices, step, the one loop, checkpoints, reports, fine-tuning."""
