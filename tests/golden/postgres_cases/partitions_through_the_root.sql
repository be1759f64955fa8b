-- Partitioned tables are followed as wholes: columns in another order below, several levels, rows that move, and a column replaced under rows.
-- replicate one
-- replicate deep
-- setup
CREATE TABLE one (a int PRIMARY KEY, b text) PARTITION BY LIST (a);
CREATE TABLE one_low (b text, a int NOT NULL);
ALTER TABLE one ATTACH PARTITION one_low FOR VALUES IN (0, 1, 2, 3);
CREATE TABLE one_high PARTITION OF one FOR VALUES IN (5, 6);
CREATE TABLE deep (a int PRIMARY KEY) PARTITION BY LIST (a);
CREATE TABLE deep_1 PARTITION OF deep FOR VALUES IN (-1, 0, 1) PARTITION BY LIST (a);
CREATE TABLE deep_1_1 PARTITION OF deep_1 FOR VALUES IN (-1, 0, 1);
INSERT INTO one VALUES (1);
INSERT INTO deep VALUES (-1);
-- workload
INSERT INTO one VALUES (0), (3), (5);
INSERT INTO deep VALUES (0);
INSERT INTO deep_1 VALUES (1);
-- session compare
whatever level rows came by
-- session a
UPDATE one SET a = 6 WHERE a = 5;
UPDATE one SET a = 2 WHERE a = 6;
UPDATE deep SET a = 0 WHERE a = 0;
DELETE FROM deep_1_1 WHERE a = -1;
-- session compare
rows moved
-- session a
DELETE FROM one;
INSERT INTO one VALUES (1, 'v'), (2, 'w'), (5, 'x');
TRUNCATE one, deep;
INSERT INTO one VALUES (5, 'behind');
-- wait
ALTER TABLE one DROP b, ADD COLUMN c text DEFAULT 'given', ADD b text;
INSERT INTO one (a, b) VALUES (1, 'xxx'), (3, 'yyy');
INSERT INTO one (a, b, c) VALUES (6, 'zzz', 'other');
-- wait
UPDATE one SET b = 'changed' WHERE a = 5;
DELETE FROM one WHERE a = 1;
