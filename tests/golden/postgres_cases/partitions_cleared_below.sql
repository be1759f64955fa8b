-- One partition of several is cleared, which the log tells nobody who follows the whole.
-- replicate t
-- setup
CREATE TABLE t (a int PRIMARY KEY, b text) PARTITION BY LIST (a);
CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1, 2);
CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (5, 6);
INSERT INTO t VALUES (1, 'one'), (5, 'five');
-- workload
INSERT INTO t VALUES (2, 'two'), (6, 'six');

TRUNCATE t_2;
-- wait
INSERT INTO t VALUES (5, 'again');
DELETE FROM t WHERE a = 1;
