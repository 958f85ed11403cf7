"""The parts of a store in SQL that do not depend on the database."""
