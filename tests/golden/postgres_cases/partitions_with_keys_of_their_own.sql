-- Partitions with a unique column each and none in common: only inserts are followed through the root.
-- replicate t insert_only
-- setup
CREATE TABLE t (a int, b int, c int) PARTITION BY LIST (a);
CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1, 2, 3);
ALTER TABLE t_1 ADD PRIMARY KEY (a);
ALTER TABLE t_1 REPLICA IDENTITY USING INDEX t_1_pkey;
CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (6, 7, 8);
ALTER TABLE t_2 ADD PRIMARY KEY (b);
ALTER TABLE t_2 REPLICA IDENTITY USING INDEX t_2_pkey;
INSERT INTO t VALUES (1, 3), (6, 4);
-- workload
INSERT INTO t VALUES (2, 5, 1), (7, 6, 2);
-- session compare
rows came to both
-- session a
INSERT INTO t_2 VALUES (8, 8, 8);

TRUNCATE t;

INSERT INTO t VALUES (3, 3, 3);
