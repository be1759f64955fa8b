-- A column gets another name and a wider type at once.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v varchar(5));
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t RENAME v TO words;
ALTER TABLE t ALTER words TYPE varchar(50);
INSERT INTO t VALUES (2, 'longer than five');
-- expected t: live
--   id | words
--   1  | one
--   2  | longer than five
-- history t:
--   column v is named words now
--   column words changed its type
