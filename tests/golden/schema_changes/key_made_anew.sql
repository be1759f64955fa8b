-- The key is dropped and made again over the same column: it is the same.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t DROP CONSTRAINT t_pkey, ADD CONSTRAINT other PRIMARY KEY (id);
UPDATE t SET v = 'changed' WHERE id = 1;
-- wait
UPDATE t SET id = 3 WHERE id = 2;
-- expected t: live
--   id | v
--   1  | changed
--   3  | two
-- history t: none
