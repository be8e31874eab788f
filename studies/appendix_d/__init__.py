"""How much of a training update does the drift along the zero-loss manifold explain?"""
