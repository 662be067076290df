-- A file of schema version 3, as the Switchboard of that version has left it. It has no logs.
CREATE TABLE value (
		id      INTEGER PRIMARY KEY,
		grp     TEXT NOT NULL,
		name    TEXT NOT NULL,
		version INTEGER NOT NULL,
		expires INTEGER NOT NULL,
		sum     INTEGER NOT NULL,
		data    BLOB,
		UNIQUE (grp, name)
	);
CREATE INDEX value_expires ON value (expires) WHERE expires > 0;
CREATE TABLE meter (
		id    INTEGER PRIMARY KEY,
		grp   TEXT NOT NULL,
		name  TEXT NOT NULL,
		whole INTEGER NOT NULL,
		sum   INTEGER NOT NULL,
		UNIQUE (grp, name)
	);
CREATE INDEX meter_whole ON meter (whole);
CREATE TABLE log (
		id     INTEGER PRIMARY KEY,
		name   TEXT NOT NULL UNIQUE,
		folder TEXT NOT NULL,
		mark   TEXT NOT NULL,
		sum    INTEGER NOT NULL
	);
INSERT INTO value VALUES (1, '', 'mark', 3399855731711749107, 0, 3163315904, X'524C335946565732464E36414A494E5A5249544246335632565A');
INSERT INTO value VALUES (2, 'tenant/acme', 'plain', -3446605019236576541, 0, 116913917, X'74657874');
INSERT INTO value VALUES (3, 'tenant/acme', 'bytes', -3446605019236576541, 0, 828630401, X'FF00');
INSERT INTO meter VALUES (1, 'tenant/acme', 'calls', 2079638606955707, 2710085607);
PRAGMA application_id = 1400324708;
PRAGMA user_version = 3;
