-- A column is added empty and filled at once, as migrations do.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three');
-- workload
ALTER TABLE t ADD COLUMN length int;
UPDATE t SET length = length(v);
ALTER TABLE t ALTER length SET NOT NULL;
-- wait
INSERT INTO t VALUES (4, 'four', 4);
-- expected t: live
--   id | v     | length
--   1  | one   | 3
--   2  | two   | 3
--   3  | three | 5
--   4  | four  | 4
-- history t:
--   column length was added
