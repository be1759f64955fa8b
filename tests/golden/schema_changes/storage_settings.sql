-- How values are stored and kept in statistics changes, and how full pages get.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ALTER v SET STORAGE EXTERNAL, ALTER v SET STATISTICS 5, ALTER v SET COMPRESSION pglz;
ALTER TABLE t SET (fillfactor = 50);
INSERT INTO t VALUES (2, repeat('x', 5000));
-- wait
VACUUM FULL t;
-- wait
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | one
--   2  | xxxxxxxxxxxx… 5000 characters
--   3  | three
-- history t: none
