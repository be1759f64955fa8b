-- A table whose rows were found by all their values gets a key.
-- replicate t
-- setup
CREATE TABLE t (id int NOT NULL, v text);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ADD PRIMARY KEY (id);
-- wait
UPDATE t SET v = 'changed' WHERE id = 1;
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | changed
--   2  | two
--   3  | three
-- history t:
--   reloading: table_structure_changed
