-- A column of a type made of others, and of a range.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1), (2);
CREATE TYPE place AS (street text, number int);
-- workload
ALTER TABLE t ADD COLUMN p place DEFAULT ROW('Long "Road", 1', 5), ADD COLUMN r int4range DEFAULT '[1,5)';
INSERT INTO t VALUES (3, ROW('x', NULL), 'empty');
-- expected t: live
--   id | p                      | r
--   1  | ("Long ""Road"", 1",5) | [1,5)
--   2  | ("Long ""Road"", 1",5) | [1,5)
--   3  | (x,)                   | empty
-- history t:
--   column p was added
--   column r was added
