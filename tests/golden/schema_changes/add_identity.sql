-- An identity column numbers the rows that are there.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (10, 'ten'), (20, 'twenty'), (30, 'thirty');
-- workload
ALTER TABLE t ADD COLUMN n int GENERATED ALWAYS AS IDENTITY;
-- wait
INSERT INTO t (id, v) VALUES (40, 'forty');
-- expected t: live
--   id | v      | n
--   10 | ten    | 1
--   20 | twenty | 2
--   30 | thirty | 3
--   40 | forty  | 4
-- history t:
--   reloading: table_structure_changed
