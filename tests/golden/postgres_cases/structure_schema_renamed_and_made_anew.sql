-- A schema gets another name and is made anew with a table of the old name, in one transaction with rows.
-- replicate renamed_schema.t
-- setup
CREATE SCHEMA renamed_schema;
CREATE TABLE renamed_schema.t (c int PRIMARY KEY);
INSERT INTO renamed_schema.t VALUES (0);
-- workload
BEGIN;
INSERT INTO renamed_schema.t VALUES (1);
ALTER SCHEMA renamed_schema RENAME TO renamed_since;
CREATE SCHEMA renamed_schema;
CREATE TABLE renamed_schema.t (c int PRIMARY KEY);
INSERT INTO renamed_schema.t VALUES (2);
INSERT INTO renamed_since.t VALUES (3);
COMMIT;
-- wait
INSERT INTO renamed_since.t VALUES (4);
