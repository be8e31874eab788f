"""Do the theorems about the zero-loss manifold hold in numbers, and where do they end?"""
