-- The key's columns change places: rows are told apart by the same values, in another order.
-- replicate t
-- setup
CREATE TABLE t (a int, b int, v text, PRIMARY KEY (a, b));
INSERT INTO t VALUES (1, 2, 'one two'), (2, 1, 'two one');
-- workload
ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (b, a);
UPDATE t SET v = 'changed' WHERE a = 1;
DELETE FROM t WHERE a = 2;
INSERT INTO t VALUES (2, 2, 'two two');
-- expected t: live
--   a | b | v
--   1 | 2 | changed
--   2 | 2 | two two
-- history t:
--   reloading: table_structure_changed
