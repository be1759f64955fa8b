-- A large transaction makes tables, fills and changes them beside a followed one, and drops one of them.
-- replicate t
-- replicate odd
-- setup
CREATE TABLE t (id serial PRIMARY KEY, data int);
CREATE TABLE odd (id text PRIMARY KEY, data text);
-- workload
BEGIN;
INSERT INTO t (data) SELECT g FROM generate_series(1, 3000) g;
DELETE FROM t WHERE id < 1500;
UPDATE t SET data = -data WHERE id > 1500;
INSERT INTO odd VALUES ('ab', 'foo');
COMMIT;
-- session compare
half is left
-- session a
BEGIN;
CREATE TABLE passing AS SELECT g FROM generate_series(1, 2000) g;
UPDATE t SET id = -id WHERE id = 1500;
UPDATE odd SET id = 'x', data = 'quux';
UPDATE odd SET id = 'yy', data = 'a';
DELETE FROM passing;
DROP TABLE passing;
COMMIT;
