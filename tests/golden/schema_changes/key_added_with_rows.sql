-- A table whose rows were found by all their values gets a key, with rows before and behind.
-- replicate t
-- setup
CREATE TABLE t (id int NOT NULL, v text);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1, 'one'), (1, 'one'), (2, 'two');
-- workload
BEGIN;
DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE id = 1);
UPDATE t SET v = 'changed before' WHERE id = 2;
ALTER TABLE t ADD PRIMARY KEY (id);
ALTER TABLE t REPLICA IDENTITY DEFAULT;
UPDATE t SET v = 'changed behind' WHERE id = 1;
INSERT INTO t VALUES (3, 'three');
COMMIT;
-- expected t: live
--   id | v
--   1  | changed behind
--   2  | changed before
--   3  | three
-- history t:
--   reloading: table_structure_changed
