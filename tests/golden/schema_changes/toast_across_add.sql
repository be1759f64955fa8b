-- A large value stays as it is while a column is added and the row is updated: the log does not repeat it.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, large text, v text);
ALTER TABLE t ALTER large SET STORAGE EXTERNAL;
INSERT INTO t VALUES (1, repeat('abcdefgh', 1000), 'one'), (2, repeat('ijklmnop', 1000), 'two');
-- workload
BEGIN;
UPDATE t SET v = 'before' WHERE id = 1;
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
UPDATE t SET v = 'behind', n = 6 WHERE id IN (1, 2);
COMMIT;
-- wait
UPDATE t SET n = 7 WHERE id = 2;
-- expected t: live
--   id | large                         | v      | n
--   1  | abcdefghabcd… 8000 characters | behind | 6
--   2  | ijklmnopijkl… 8000 characters | behind | 7
-- history t:
--   column n was added
