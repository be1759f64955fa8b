-- A large value stays as it is while its column gets another name.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, large text, v text);
ALTER TABLE t ALTER large SET STORAGE EXTERNAL;
INSERT INTO t VALUES (1, repeat('abcdefgh', 1000), 'one'), (2, repeat('ijklmnop', 1000), 'two');
-- workload
BEGIN;
UPDATE t SET v = 'before' WHERE id = 1;
ALTER TABLE t RENAME large TO huge;
UPDATE t SET v = 'behind' WHERE id = 1;
UPDATE t SET id = 20 WHERE id = 2;
COMMIT;
-- wait
UPDATE t SET v = 'later' WHERE id = 20;
-- expected t: live
--   id | huge                          | v
--   1  | abcdefghabcd… 8000 characters | behind
--   20 | ijklmnopijkl… 8000 characters | later
-- history t:
--   column large is named huge now
