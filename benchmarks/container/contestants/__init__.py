"""One file per contestant, each in its own idiom.

``statements()`` gives, by work, the source that is timed and the names it uses; ``boot(graph)``
registers the classes of a graph as singletons, checks what it can check, and builds all of them.
"""
