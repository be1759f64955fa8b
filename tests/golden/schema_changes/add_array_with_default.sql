-- An array with elements that have to be quoted fills the rows from before.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ADD COLUMN tags text[] DEFAULT ARRAY['a', 'b c', 'd,e', 'say "hi"', 'back\slash', NULL, ''];
-- wait
INSERT INTO t VALUES (3, 'three', '{x}');
UPDATE t SET v = 'changed' WHERE id = 1;
-- expected t: live
--   id | v       | tags
--   1  | changed | {a,"b c","d,… 50 characters
--   2  | two     | {a,"b c","d,… 50 characters
--   3  | three   | {x}
-- history t:
--   column tags was added
