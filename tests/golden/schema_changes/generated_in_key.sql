-- Generated columns are in the keys of two tables.
-- replicate t
-- replicate u
-- setup
CREATE TABLE t (n int, twice int GENERATED ALWAYS AS (n * 2) STORED PRIMARY KEY);
CREATE TABLE u (n int, twice int GENERATED ALWAYS AS (n * 2) STORED NOT NULL);
CREATE UNIQUE INDEX by_twice ON u (twice);
ALTER TABLE u REPLICA IDENTITY USING INDEX by_twice;
INSERT INTO t VALUES (1), (2), (3);
INSERT INTO u VALUES (1), (2), (3);
-- workload
UPDATE t SET n = n + 10 WHERE n < 3;
DELETE FROM t WHERE n = 3;
UPDATE u SET n = n + 10 WHERE n < 3;
DELETE FROM u WHERE n = 3;
-- wait
ALTER TABLE t ADD COLUMN v text;
INSERT INTO t VALUES (20, DEFAULT, 'x');
-- expected t: live
--   n  | twice | v
--   11 | 22    | NULL
--   12 | 24    | NULL
--   20 | 40    | x
-- history t:
--   column v was added
-- expected u: live
--   n  | twice
--   11 | 22
--   12 | 24
-- history u: none
