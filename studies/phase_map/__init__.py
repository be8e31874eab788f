"""Model size x data x op: where does bounding activations help, at which endpoint?"""
