"""The files of ``docker/`` as the programs read them that use them, and the services started without a container."""
