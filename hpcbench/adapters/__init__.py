"""Takes models and datasets that were written for other loops as they are: Lightning's, plain torch, Hugging Face's."""
