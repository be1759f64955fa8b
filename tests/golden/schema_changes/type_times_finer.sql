-- Other types of a time, and bits, get finer or longer.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a timestamptz(0), b time(0), c timetz(2), d varbit(4));
INSERT INTO t VALUES (1, '2020-02-29 12:34:56.7+00', '12:34:56.7', '12:34:56.789+02', B'1010');
-- workload
ALTER TABLE t ALTER a TYPE timestamptz(6), ALTER b TYPE time, ALTER c TYPE timetz(4), ALTER d TYPE varbit(8);
INSERT INTO t VALUES (2, '2020-02-29 12:34:56.789012+00', '12:34:56.789012', '12:34:56.789012+02', B'10101010');
-- expected t: live
--   id | a                             | b               | c               | d
--   1  | 2020-02-29 12:34:57+00        | 12:34:57        | 12:34:56.79+02  | 1010
--   2  | 2020-02-29 12:34:56.789012+00 | 12:34:56.789012 | 12:34:56.789+02 | 10101010
-- history t:
--   column a changed its type
--   column b changed its type
--   column c changed its type
--   column d changed its type
