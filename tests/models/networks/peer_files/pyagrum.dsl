net garden
{
// property softwar aGrUM 3.3.1

	node b
	{
		TYPE = CPT;
		HEADER =
		{
			ID = b;
			NAME = "b";
		};
		PARENTS = ();
		DEFINITION =
		{
			NAMESTATES = (b0, b1, b2, b3);
			PROBABILITIES = (0.0434783, 0.26087, 0.478261, 0.217391);
		};
	};

	node c
	{
		TYPE = CPT;
		HEADER =
		{
			ID = c;
			NAME = "c";
		};
		PARENTS = ();
		DEFINITION =
		{
			NAMESTATES = (c0, c1);
			PROBABILITIES = (0.142857, 0.857143);
		};
	};

	node a
	{
		TYPE = CPT;
		HEADER =
		{
			ID = a;
			NAME = "a";
		};
		PARENTS = (c);
		DEFINITION =
		{
			NAMESTATES = (a0, a1, a2);
			PROBABILITIES = (0.0666667, 0.333333, 0.6, 0.470588, 0.117647, 0.411765);
		};
	};

	node d
	{
		TYPE = CPT;
		HEADER =
		{
			ID = d;
			NAME = "d";
		};
		PARENTS = (b, a, c);
		DEFINITION =
		{
			NAMESTATES = (d0, d1);
			PROBABILITIES = (0.166667, 0.833333, 0.375, 0.625, 0.333333, 0.666667, 0.818182, 0.181818, 0.388889, 0.611111, 0.166667, 0.833333, 0.888889, 0.111111, 0.25, 0.75, 0.733333, 0.266667, 0.333333, 0.666667, 0.3, 0.7, 0.727273, 0.272727, 0.333333, 0.666667, 0.818182, 0.181818, 0.388889, 0.611111, 0.125, 0.875, 0.769231, 0.230769, 0.25, 0.75, 0.733333, 0.266667, 0.357143, 0.642857, 0.3, 0.7, 0.666667, 0.333333, 0.375, 0.625, 0.52381, 0.47619);
		};
	};

};