"""Model Context Protocol (MCP): the API of a graph as tools and resources of an agent."""
