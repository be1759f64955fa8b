-- The unique index that identified rows is dropped, and the key does not step in.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, v text);
CREATE UNIQUE INDEX t_code ON t (code);
ALTER TABLE t REPLICA IDENTITY USING INDEX t_code;
INSERT INTO t VALUES (1, 'a', 'one');
-- workload
DROP INDEX t_code;
-- expected t: parked table_no_identity
--   id | code | v
--   1  | a    | one
-- history t:
--   parked: table_no_identity
