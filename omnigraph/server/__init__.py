"""HTTP server over `Graph`: an ASGI application, its worker processes and their supervisor.

A route is one call on `Graph` and one rendering. This room alone imports the web server.
"""
