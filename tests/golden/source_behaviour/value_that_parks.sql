-- replicate prices
-- replicate lists
-- replicate unharmed
-- setup
CREATE TABLE prices (id int PRIMARY KEY, v numeric(8, 2));
CREATE TABLE lists (id int PRIMARY KEY, v int[]);
CREATE TABLE unharmed (id int PRIMARY KEY, v numeric(8, 2));
INSERT INTO prices VALUES (1, 1.50);
INSERT INTO lists VALUES (1, '{1,2}');
INSERT INTO unharmed VALUES (1, 1);
-- workload
INSERT INTO prices VALUES (2, 'NaN');
INSERT INTO unharmed VALUES (2, 2);

UPDATE lists SET v = '{{1,2},{3,4}}';
UPDATE unharmed SET v = v + 1;
-- parked prices value_out_of_domain duckdb
-- parked lists value_out_of_domain duckdb
