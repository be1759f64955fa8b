-- The key gets a second column: rows that were one before may be two.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, part int NOT NULL DEFAULT 0, v text);
INSERT INTO t VALUES (1, 0, 'one'), (2, 0, 'two');
-- workload
ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, part);
INSERT INTO t VALUES (1, 1, 'another one');
UPDATE t SET v = 'changed' WHERE id = 1 AND part = 0;
-- expected t: live
--   id | part | v
--   1  | 0    | changed
--   1  | 1    | another one
--   2  | 0    | two
-- history t:
--   reloading: table_structure_changed
