"""What may be published: files of releases, and the model that they hold."""
