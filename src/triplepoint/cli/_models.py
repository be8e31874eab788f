"""What MODEL means on the command line, in words."""

MODEL = "A named size, a Hugging Face folder or config.json, module:callable, or a run folder for its architecture."
