"""One consumer: its engine made safe for threads, its workers, its settlements."""
