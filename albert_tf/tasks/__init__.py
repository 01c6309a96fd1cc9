"""What a model is trained to do: its data, its head, its loss and its scores."""
