-- The key is dropped, a row comes that nothing identifies, and there is a key again before anybody looks.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, v text);
INSERT INTO t VALUES (1, 10, 'one'), (2, 20, 'two');
-- workload
ALTER TABLE t DROP CONSTRAINT t_pkey;
INSERT INTO t VALUES (3, 30, 'three');
ALTER TABLE t ADD PRIMARY KEY (n, id);
UPDATE t SET v = 'changed' WHERE id = 1;
-- wait
UPDATE t SET n = 21 WHERE id = 2;
-- expected t: live
--   id | n  | v
--   1  | 10 | changed
--   2  | 21 | two
--   3  | 30 | three
-- history t:
--   reloading: table_structure_changed
