-- Large values of a table that is dropped before they can have been read, beside one that stays.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, big text);
-- workload
CREATE TABLE gone (id int PRIMARY KEY, big text);
BEGIN;
INSERT INTO gone SELECT 1, string_agg(g::text, '') FROM generate_series(1, 3000) g;
INSERT INTO t SELECT * FROM gone;
UPDATE gone SET id = 2;
UPDATE t SET id = 2;
DROP TABLE gone;
COMMIT;
