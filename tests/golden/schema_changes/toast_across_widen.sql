-- A large value stays as it is while its column loses its limit, and one before it goes.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, large varchar(9000), w text);
ALTER TABLE t ALTER large SET STORAGE EXTERNAL;
INSERT INTO t VALUES (1, 'one', repeat('abcdefgh', 1000), 'w'), (2, 'two', repeat('ijklmnop', 1000), 'w');
-- workload
BEGIN;
UPDATE t SET w = 'before' WHERE id = 1;
ALTER TABLE t DROP COLUMN v, ALTER large TYPE text;
UPDATE t SET w = 'behind' WHERE id = 1;
UPDATE t SET large = large || '!' WHERE id = 2;
COMMIT;
-- expected t: live
--   id | large                         | w
--   1  | abcdefghabcd… 8000 characters | behind
--   2  | ijklmnopijkl… 8001 characters | w
-- history t:
--   column v was dropped
--   column large changed its type
